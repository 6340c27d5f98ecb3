// From an object the caller hands back to the wrapper that made it.
#pragma once

#include <memory>
#include <string>

#include "util/error.h"

namespace verbena::faulty {

// Throws invalid_argument for an object that is missing or of another provider.
template <typename Wrapper, typename Wrapped>
std::shared_ptr<Wrapper> unwrap(const std::shared_ptr<Wrapped>& object, const char* operation) {
  auto wrapper = std::dynamic_pointer_cast<Wrapper>(object);
  if (!wrapper)
    throw Error("invalid_argument", operation, "an object is missing or belongs to another provider");
  return wrapper;
}

}  // namespace verbena::faulty
