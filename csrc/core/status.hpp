// Status says how a core call ended; Result carries its value as well.
//
// The core throws nothing of its own: whatever can fail returns one of these,
// and the compiler complains about a caller that ignores it.  A binding turns
// each Code into the Python exception named beside it.
//
// Thread safety: plain values, shared like an int.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace gristmill {

enum class Code {
  kOk,
  kInvalidArgument,  // ValueError
  kOutOfRange,       // IndexError
  kOverflow,         // OverflowError
  kDivideByZero,     // ZeroDivisionError
  kNoMemory,         // MemoryError
  kSystem,           // OSError, with error_number()
};

class [[nodiscard]] Status {
 public:
  // The call succeeded.
  Status() = default;

  // REQUIRES: code is neither kOk nor kSystem.
  Status(Code code, std::string message)
      : code_(code), message_(std::move(message)) {
    assert(code != Code::kOk && code != Code::kSystem);
  }

  // A system call failed with `error_number`, an errno value; `message` says
  // what was tried.
  static Status system(int error_number, std::string message) {
    Status status;
    status.code_ = Code::kSystem;
    status.error_number_ = error_number;
    status.message_ = std::move(message);
    return status;
  }

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const noexcept { return code_; }

  // Empty when ok().
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // The errno value of a kSystem status, 0 for any other.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

 private:
  Code code_ = Code::kOk;
  int error_number_ = 0;
  std::string message_;
};

// Either a T or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function may return either.
  Result(T value) : value_(std::move(value)) {}
  // REQUIRES: !status.ok().
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

  // REQUIRES: ok().
  [[nodiscard]] T& value() & {
    assert(ok());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    assert(ok());
    return *std::move(value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace gristmill
