// Error: the exception of the native core. Set-up functions throw it; bind/ converts it to a class of
// verbena.errors.
// May depend on util/ only.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "util/error_code.h"

namespace verbena {

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string operation, std::string detail, int error_number = 0)
      : std::runtime_error(code.str() + ": " + operation + ": " + detail),
        code_(code),
        operation_(std::move(operation)),
        detail_(std::move(detail)),
        error_number_(error_number) {}

  ErrorCode code() const { return code_; }
  const std::string& operation() const { return operation_; }  // the operation that failed
  const std::string& detail() const { return detail_; }        // the particulars of this failure
  int error_number() const { return error_number_; }           // errno, or 0

 private:
  ErrorCode code_;
  std::string operation_, detail_;
  int error_number_;
};

}  // namespace verbena
