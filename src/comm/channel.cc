#include "comm/channel.h"

#include <algorithm>
#include <cstring>

namespace epl::comm {
namespace {

uint64_t chunks_of(const Contents& contents) {
  // A message without elements is one chunk as well: it has to be seen.
  return static_cast<uint64_t>(
      std::max<int64_t>(1, (contents.bytes() + Channel::kChunk - 1) / Channel::kChunk));
}

}  // namespace

// --- sender ------------------------------------------------------------------------------------

void ChannelWriter::begin(const Contents& contents, const void* data) {
  contents_ = contents;
  data_ = static_cast<const char*>(data);
  written_ = 0;
  ++messages_;
  end_ += chunks_of(contents);
  channel_.contents = contents;  // the message before it was taken
}

bool ChannelWriter::advance() {
  moved_ = false;
  uint64_t sent = channel_.sent.load(std::memory_order_relaxed);
  const uint64_t taken = channel_.taken.load(std::memory_order_seq_cst);
  while (sent < end_ && sent - taken < Channel::kSlots) {
    const int64_t bytes = std::min(Channel::kChunk, contents_.bytes() - written_);
    if (bytes > 0) {
      std::memcpy(channel_.chunks[sent % Channel::kSlots], data_ + written_,
                  static_cast<size_t>(bytes));
    }
    written_ += bytes;
    channel_.sent.store(++sent, std::memory_order_seq_cst);
    moved_ = true;
  }
  return taken == end_;
}

std::optional<Contents> ChannelWriter::refused() const {
  if (channel_.refused.load(std::memory_order_seq_cst) != messages_) return std::nullopt;
  return channel_.expected;
}

// --- receiver ----------------------------------------------------------------------------------

bool ChannelReader::something_there() const {
  return channel_.sent.load(std::memory_order_seq_cst) !=
         channel_.taken.load(std::memory_order_relaxed);
}

void ChannelReader::open(const Contents* expected, void* data) {
  Message message;
  message.contents = channel_.contents;
  message.wanted = expected && expected->tag == message.contents.tag;
  ++messages_;
  if (message.wanted && expected->matches(message.contents)) {
    message.data = static_cast<char*>(data);
  } else if (message.wanted) {
    channel_.expected = *expected;
    channel_.refused.store(messages_, std::memory_order_seq_cst);
  } else {
    message.own = std::make_unique<char[]>(static_cast<size_t>(message.contents.bytes()));
    message.data = message.own.get();
  }
  open_ = std::move(message);
}

bool ChannelReader::read_on() {
  const uint64_t sent = channel_.sent.load(std::memory_order_seq_cst);
  uint64_t taken = channel_.taken.load(std::memory_order_relaxed);
  const int64_t all = open_->contents.bytes();
  bool complete = false;
  while (taken < sent && !complete) {
    const int64_t bytes = std::min(Channel::kChunk, all - open_->read);
    if (bytes > 0 && open_->data) {
      std::memcpy(open_->data + open_->read, channel_.chunks[taken % Channel::kSlots],
                  static_cast<size_t>(bytes));
    }
    open_->read += bytes;
    complete = open_->read == all;
    channel_.taken.store(++taken, std::memory_order_seq_cst);
    moved_ = true;
  }
  return complete;
}

bool ChannelReader::take(const Contents& expected, void* data, std::optional<Contents>* other) {
  moved_ = false;
  while (true) {
    const auto found = std::find_if(aside_.begin(), aside_.end(), [&](const Message& message) {
      return message.contents.tag == expected.tag;
    });
    if (found != aside_.end()) {
      if (!found->contents.matches(expected)) {
        *other = found->contents;
      } else if (found->contents.bytes() != 0) {
        std::memcpy(data, found->data, static_cast<size_t>(found->contents.bytes()));
      }
      aside_.erase(found);
      return true;
    }
    if (!something_there()) return false;
    if (!open_) open(&expected, data);
    if (!read_on()) return false;
    Message message = std::move(*open_);
    open_.reset();
    if (message.wanted) {
      if (!message.contents.matches(expected)) *other = message.contents;
      return true;
    }
    aside_.push_back(std::move(message));
  }
}

void ChannelReader::put_aside() {
  moved_ = false;
  if (open_ && open_->wanted) return;  // whoever wants it reads on
  while (something_there()) {
    if (!open_) open(nullptr, nullptr);
    if (!read_on()) return;
    aside_.push_back(std::move(*open_));
    open_.reset();
  }
}

}  // namespace epl::comm
