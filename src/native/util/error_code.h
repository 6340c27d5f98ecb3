// A code of the error table (src/verbena/errors). A string literal converts to it at compile time:
// a code that the table does not have does not compile. Add a row there, then run tools/error_codes.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "util/error_codes.h"

namespace verbena {

class ErrorCode {
 public:
  constexpr ErrorCode() = default;  // no error
  consteval ErrorCode(const char* code) : index_(index_of(code)) {
    if (index_ == 0) this_code_has_no_row_in_the_error_table();
  }

  constexpr bool empty() const { return index_ == 0; }
  constexpr std::string_view text() const { return kErrorCodes[index_]; }
  constexpr const char* c_str() const { return text().data(); }  // the table holds literals
  std::string str() const { return std::string(text()); }

  friend constexpr bool operator==(ErrorCode, ErrorCode) = default;

 private:
  static void this_code_has_no_row_in_the_error_table();  // not constexpr: a call ends constant evaluation

  static constexpr uint16_t index_of(std::string_view text) {
    for (size_t i = 1; i < std::size(kErrorCodes); ++i)
      if (kErrorCodes[i] == text) return static_cast<uint16_t>(i);
    return 0;
  }

  uint16_t index_ = 0;
};

}  // namespace verbena
