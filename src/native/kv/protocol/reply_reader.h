// Parses RESP2 and RESP3 replies, for clients. A ReplyVisitor receives the parts and builds the values.
// No I/O; depends on nothing else of the project.
#pragma once

#include <cstdint>
#include <string_view>

namespace verbena::kv {

// Receives the parts of a reply in order: begin() of an aggregate, its items, end().
class ReplyVisitor {
 public:
  virtual ~ReplyVisitor() = default;
  virtual void null() = 0;
  virtual void boolean(bool yes) = 0;
  virtual void integer(int64_t number) = 0;
  virtual void number(double value) = 0;
  virtual void big_number(std::string_view digits) = 0;
  virtual void simple(std::string_view text) = 0;
  virtual void bulk(std::string_view bytes) = 0;
  virtual void error(std::string_view text) = 0;
  enum class Kind : uint8_t { array, map, set, push };
  virtual void begin(Kind kind, size_t items) = 0;  // a map's items are its keys and values
  virtual void end() = 0;
};

enum class ReplyResult : uint8_t { whole, more, bad };

// Checks whether `bytes` begin with a complete reply. `whole`: `length` is its length; `more`: retry with
// more bytes; `bad`: not RESP. Allocates nothing, whatever sizes the reply announces.
ReplyResult measure_reply(std::string_view bytes, size_t& length);
// Passes the reply at the start of `bytes` to the visitor. measure_reply() must have returned `whole`.
void visit_reply(std::string_view bytes, ReplyVisitor& visitor);

}  // namespace verbena::kv
