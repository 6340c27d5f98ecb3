// Copies one value into a snapshot or a base copy: a small one as one command, a large one in pieces, between
// which commands run. Until the last piece the copy is incomplete, so log records of the key must be withheld
// from the receiver until then.
// Depends on the engine and the limits of log records; not on files or sessions.
#pragma once

#include <functional>
#include <string>

#include "kv/engine/engine.h"

namespace verbena::kv {

class ValueCopy {
 public:
  explicit ValueCopy(std::string key) : key_(std::move(key)) {}

  using Put = std::function<void(Arguments)>;
  // Puts the next piece of the value that is at the key now. True: call again. False: that was the last
  // piece, or the copy failed and error() is not empty.
  bool step(Engine& engine, Database& database, const Put& put);
  const std::string& key() const { return key_; }
  bool has_begun() const { return begun_; }
  const std::string& error() const { return error_; }

 private:
  bool fail(const char* why);

  const std::string key_;
  std::unique_ptr<ValueWalk> walk_;
  uint64_t object_ = 0;
  bool begun_ = false, lost_ = false;
  std::vector<std::string_view> arguments_;
  std::string error_;
};

}  // namespace verbena::kv
