// The one exception of the native core: set-up throws it, bind/ turns it into verbena.errors by its code.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace verbena {

class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string operation, std::string detail, int error_number = 0)
      : std::runtime_error(code + ": " + operation + ": " + detail),
        code_(std::move(code)),
        operation_(std::move(operation)),
        detail_(std::move(detail)),
        error_number_(error_number) {}

  const std::string& code() const { return code_; }            // a key of the table in errors.py
  const std::string& operation() const { return operation_; }  // what was being done
  const std::string& detail() const { return detail_; }        // the particulars of this failure
  int error_number() const { return error_number_; }           // errno, or 0

 private:
  std::string code_, operation_, detail_;
  int error_number_;
};

}  // namespace verbena
