#include "comm/message_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace epl::comm {
namespace {

// Ahead of each message: this word, so that whatever else listens at or calls the port is noticed,
// and the number of bytes that follow: for each text its length and its letters. All numbers are in
// the byte order of the machine; workers of a job are of one kind.
constexpr uint32_t kStreamMagic = 0x314c5045;  // "EPL1"
constexpr uint32_t kMostBytes = 1u << 30;

void append_number(std::string& out, uint32_t number) {
  std::array<char, sizeof(number)> bytes;
  std::memcpy(bytes.data(), &number, sizeof(number));
  out.append(bytes.data(), bytes.size());
}

uint32_t number_at(const char* place) {
  uint32_t number = 0;
  std::memcpy(&number, place, sizeof(number));
  return number;
}

// Nothing where the lengths do not add up.
std::optional<Message> decode(const char* body, size_t bytes) {
  Message message;
  size_t at = 0;
  while (at < bytes) {
    if (bytes - at < sizeof(uint32_t)) return std::nullopt;
    const uint32_t length = number_at(body + at);
    at += sizeof(uint32_t);
    if (bytes - at < length) return std::nullopt;
    message.emplace_back(body + at, length);
    at += length;
  }
  return message;
}

}  // namespace

void MessageStream::send(const Message& message) {
  size_t bytes = 0;
  for (const std::string& text : message) bytes += sizeof(uint32_t) + text.size();
  append_number(unsent_, kStreamMagic);
  append_number(unsent_, static_cast<uint32_t>(bytes));
  for (const std::string& text : message) {
    append_number(unsent_, static_cast<uint32_t>(text.size()));
    unsent_ += text;
  }
  flush();
}

void MessageStream::flush() {
  size_t sent = 0;
  while (!closed_ && sent < unsent_.size()) {
    const ssize_t count = ::send(connection_.get(), unsent_.data() + sent, unsent_.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // What the other side said before it went is still read: receive() closes.
      unsent_.clear();
      return;
    }
  }
  unsent_.erase(0, sent);
}

void MessageStream::finish_sending() { shutdown(connection_.get(), SHUT_WR); }

void MessageStream::receive() {
  std::array<char, 16384> bytes;
  while (!closed_) {
    const ssize_t count = recv(connection_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      received_.append(bytes.data(), static_cast<size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      closed_ = true;
    }
  }
}

std::optional<Message> MessageStream::next() {
  constexpr size_t kHead = 2 * sizeof(uint32_t);
  const char* place = received_.data() + consumed_;
  const size_t left = received_.size() - consumed_;
  const bool complete = left >= kHead && left - kHead >= number_at(place + sizeof(uint32_t));
  if (left >= kHead &&
      (number_at(place) != kStreamMagic || number_at(place + sizeof(uint32_t)) > kMostBytes)) {
    closed_ = true;
    received_.clear();
    consumed_ = 0;
    return std::nullopt;
  }
  if (!complete) {
    received_.erase(0, consumed_);
    consumed_ = 0;
    return std::nullopt;
  }
  const uint32_t bytes = number_at(place + sizeof(uint32_t));
  std::optional<Message> message = decode(place + kHead, bytes);
  consumed_ += kHead + bytes;
  if (!message) closed_ = true;
  return message;
}

}  // namespace epl::comm
