// Loads functions of optional shared libraries at run time. A library that was opened is never unloaded: its
// threads and handles may live until the process ends.
// May depend on util/ only.
#pragma once

#include <dlfcn.h>

#include <string>

#include "util/error.h"

namespace verbena {

class DynamicLoader {
 public:
  // Why not everything was found, with the remedy of the first failure; empty when nothing is missing.
  const std::string& missing() const { return missing_; }

  // Throws provider_missing with that reason, if there is one.
  void require(const char* operation) const {
    if (!missing_.empty()) throw Error("provider_missing", operation, missing_);
  }

  // The handle of library `name`, or nullptr; `remedy` is the installation hint for the user.
  void* open(const char* name, const std::string& remedy) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle && missing_.empty()) {
      const char* why = dlerror();
      missing_ = std::string(name) + " cannot be loaded (" + (why ? why : "no reason given") + "); " + remedy;
    }
    return handle;
  }

  template <typename Function>
  static void find(void* handle, const char* symbol, Function& out) {
    out = reinterpret_cast<Function>(dlsym(handle, symbol));
  }

  // As find(), but the symbol must exist: `owner` names the library in the text.
  template <typename Function>
  void load(void* handle, const char* symbol, Function& out, const std::string& owner) {
    find(handle, symbol, out);
    if (!out && missing_.empty()) missing_ = owner + " lacks " + symbol;
  }

 private:
  std::string missing_;
};

// The one instance of a table of functions, a class derived from DynamicLoader. Never destroyed.
template <typename Table>
const Table& loaded() {
  static const Table& once = *new Table;
  return once;
}

}  // namespace verbena
