#include "comm/link.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace epl::comm {
namespace {

constexpr size_t kMostPieces = 64;

// Whether bytes that were written may still reach the other side.
bool is_delivering(int connection) {
  int on_its_way = 0;
  tcp_info state{};
  socklen_t length = sizeof(state);
  return ioctl(connection, SIOCOUTQ, &on_its_way) == 0 && on_its_way > 0 &&
         getsockopt(connection, IPPROTO_TCP, TCP_INFO, &state, &length) == 0 &&
         state.tcpi_state != TCP_CLOSE;
}

}  // namespace

size_t bytes_of(const Spans& spans) {
  size_t bytes = 0;
  for (const Span& span : spans) bytes += span.bytes;
  return bytes;
}

void Link::queue(std::string head, const Spans& spans) {
  unsent_.push_back({std::move(head), spans, 0});
}

void Link::flush() {
  while (has_unsent()) {
    Unsent& first = unsent_.front();
    std::array<iovec, kMostPieces> pieces;
    size_t count = 0;
    size_t skipped = first.sent;
    const auto add = [&](char* data, size_t bytes) {
      const size_t skip = std::min(skipped, bytes);
      skipped -= skip;
      if (bytes > skip && count < kMostPieces) pieces[count++] = {data + skip, bytes - skip};
    };
    add(first.head.data(), first.head.size());
    for (const Span& span : first.spans) add(span.data, span.bytes);
    if (count == 0) {
      unsent_.pop_front();
      continue;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(connection_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      first.sent += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      unsent_.clear();  // what the other side said before it went is still read: read() closes
      return;
    }
  }
}

size_t Link::read(char* place, size_t bytes) {
  size_t done = 0;
  while (done < bytes && !closed_) {
    if (ahead_begin_ < ahead_end_) {
      const size_t taken = std::min(bytes - done, ahead_end_ - ahead_begin_);
      std::memcpy(place + done, ahead_.data() + ahead_begin_, taken);
      ahead_begin_ += taken;
      done += taken;
      continue;
    }
    const bool direct = bytes - done >= ahead_.size();
    const ssize_t count = recv(connection_.get(), direct ? place + done : ahead_.data(),
                               direct ? bytes - done : ahead_.size(), MSG_DONTWAIT);
    if (count > 0 && direct) {
      done += static_cast<size_t>(count);
    } else if (count > 0) {
      ahead_begin_ = 0;
      ahead_end_ = static_cast<size_t>(count);
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else {
      closed_ = true;
    }
  }
  return done;
}

void Link::close() {
  closed_ = true;
  unsent_.clear();
  connection_.reset();
}

void Link::finish_writing() {
  flush();
  shutdown(connection_.get(), SHUT_WR);
}

// A close while bytes of the other side lie unread resets the connection, and what was written and
// is still on its way would be lost.
void Link::finish(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!closed_ && is_delivering(connection_.get()) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  close();
}

}  // namespace epl::comm
