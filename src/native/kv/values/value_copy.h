// How a value of the program's gets into a snapshot or a base copy: small ones as one command, large ones in
// pieces between which commands run. Until the last piece the copy says nothing that can be relied on, so
// whatever the log has of the key meanwhile must be kept from who applies the pieces.
#pragma once

#include <functional>
#include <string>

#include "kv/engine/engine.h"

namespace verbena::kv {

class ValueCopy {
 public:
  explicit ValueCopy(std::string key) : key_(std::move(key)) {}

  using Put = std::function<void(Arguments)>;
  // The next piece, whatever is under the key by now; false: that was the last one, or error() says why there
  // is none.
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
