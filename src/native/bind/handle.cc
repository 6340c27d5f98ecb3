#include "bind/handle.h"

namespace verbena::bind {

void refuse_inherited(const char* operation, const char* kind) {
  throw Error("forked", operation, kind ? std::string("the ") + kind : std::string());
}

}  // namespace verbena::bind
