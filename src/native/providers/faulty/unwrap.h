// Converts an object from the caller to the wrapper that this provider made.
#pragma once

#include <memory>
#include <string>

#include "util/error.h"

namespace verbena::faulty {

// Throws invalid_argument for a missing object or one of another provider.
template <typename Wrapper, typename Wrapped>
std::shared_ptr<Wrapper> unwrap(const std::shared_ptr<Wrapped>& object, const char* operation) {
  auto wrapper = std::dynamic_pointer_cast<Wrapper>(object);
  if (!wrapper)
    throw Error("invalid_argument", operation, "an object is missing or belongs to another provider");
  return wrapper;
}

}  // namespace verbena::faulty
