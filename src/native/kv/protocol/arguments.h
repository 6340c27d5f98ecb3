// The arguments of one command, its name first, as views of bytes that the caller keeps.
// Depends on nothing else of the project.
#pragma once

#include <span>
#include <string_view>

namespace verbena::kv {

using Arguments = std::span<const std::string_view>;

}  // namespace verbena::kv
