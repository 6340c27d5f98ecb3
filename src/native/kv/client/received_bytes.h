// Bytes that a client has received and not consumed: short ones are copied together, a long one stays in the
// memory into which it was pulled, so that its only copy is the one into the caller's object.
// Depends on the transport's Bytes only. One thread at a time.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "transport/session/bytes.h"

namespace verbena::kv {

class ReceivedBytes {
 public:
  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    if (chunks_.empty() || chunks_.back().is_pulled) chunks_.emplace_back();
    chunks_.back().copied.append(bytes);
    end_ += bytes.size();
  }
  void append(transport::Bytes bytes) {
    if (bytes.span().empty()) return;
    end_ += bytes.span().size();
    chunks_.push_back({.pulled = std::move(bytes), .is_pulled = true});
  }

  size_t unread() const { return end_ - at_; }

  // Positions count from the first byte ever appended. What was read stays until drop_read().
  size_t position() const { return at_; }
  void rewind(size_t position) {
    if (position >= begin_ && position <= end_) at_ = position;
  }
  void skip(size_t bytes) { at_ += bytes; }
  void drop_read() {
    while (!chunks_.empty() && begin_ + chunks_.front().view().size() <= at_) {
      begin_ += chunks_.front().view().size();
      if (chunks_.size() == 1 && !chunks_.front().is_pulled && chunks_.front().copied.capacity() < kKept) {
        return chunks_.front().copied.clear();  // its memory is used again
      }
      chunks_.pop_front();
    }
  }

  // Reads a line without its CRLF, valid until the next call of a member. False: it is incomplete, and
  // nothing was read.
  bool read_line(std::string_view& line) {
    const std::string_view first = front();
    size_t length = first.find("\r\n");
    if (length == std::string_view::npos) {
      if (first.size() == unread()) return false;
      line_.clear();
      copy_out(unread(), [&](std::string_view part) {
        line_.append(part);
        length = line_.find("\r\n");
        return length == std::string::npos;
      });
      if (length == std::string::npos) return false;
      line = std::string_view(line_).substr(0, length);
    } else {
      line = first.substr(0, length);
    }
    at_ += length + 2;
    return true;
  }
  // Reads `bytes` bytes, at most unread(), into `to`.
  void read(char* to, size_t bytes) {
    peek(to, bytes);
    at_ += bytes;
  }
  void peek(char* to, size_t bytes) const {
    copy_out(bytes, [&](std::string_view part) {
      std::memcpy(to, part.data(), part.size());
      to += part.size();
      return true;
    });
  }
  // All unread bytes in one piece; copies them only if they are in several.
  std::string_view contiguous() {
    std::string_view first = front();
    if (first.size() == unread()) return first;
    Chunk whole;
    whole.copied.reserve(unread());
    copy_out(unread(), [&](std::string_view part) {
      whole.copied.append(part);
      return true;
    });
    begin_ = at_;
    chunks_.clear();
    chunks_.push_back(std::move(whole));
    return chunks_.front().copied;
  }

 private:
  static constexpr size_t kKept = 64u << 10;  // memory that is kept for the next bytes

  struct Chunk {
    std::string copied;
    transport::Bytes pulled;
    bool is_pulled = false;
    std::string_view view() const {
      if (!is_pulled) return copied;
      const auto bytes = pulled.span();
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
  };

  // The unread bytes of the first chunk that has some.
  std::string_view front() const {
    std::string_view found;
    copy_out(unread(), [&](std::string_view part) {
      found = part;
      return false;
    });
    return found;
  }
  // Passes up to `most` unread bytes to `take`, in parts, until it returns false.
  template <typename Take>
  void copy_out(size_t most, Take take) const {
    size_t skipped = at_ - begin_;
    for (const Chunk& chunk : chunks_) {
      const std::string_view view = chunk.view();
      if (skipped >= view.size()) {
        skipped -= view.size();
        continue;
      }
      const std::string_view part = view.substr(skipped, most);
      skipped = 0;
      most -= part.size();
      if (!take(part) || most == 0) return;
    }
  }

  std::deque<Chunk> chunks_;
  size_t begin_ = 0, at_ = 0, end_ = 0;  // positions of the first kept byte, of the next to read, of the end
  std::string line_;
};

}  // namespace verbena::kv
