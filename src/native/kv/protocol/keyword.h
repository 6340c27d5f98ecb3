// Compares keywords of commands, ignoring case. Depends on nothing else of the project.
#pragma once

#include <string_view>

namespace verbena::kv {

// `capitals` must be in upper case.
inline bool is_keyword(std::string_view text, std::string_view capitals) {
  if (text.size() != capitals.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'a' && text[i] <= 'z' ? static_cast<char>(text[i] - 32) : text[i];
    if (c != capitals[i]) return false;
  }
  return true;
}

}  // namespace verbena::kv
