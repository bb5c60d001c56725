// Status is the outcome of a core call; Result also carries a value.
//
// The core does not throw its own exceptions.  Functions that can fail return a
// Status or a Result, and the compiler warns if the caller ignores it.
// Bindings convert each Code to the Python exception in its comment.
//
// Thread safety: plain values, as safe to share as an int.
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
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
  kRaised,           // The exception of a callback, see cause()
};

// Concatenates strings and integers.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string all;
  const auto add = [&all](const auto& part) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(part)>>) {
      all += std::to_string(part);
    } else {
      all += part;
    }
  };
  (add(parts), ...);
  return all;
}

// Returns the Status from the enclosing function if the argument, a Result or a
// Status, is an error.  Otherwise evaluates to the value of the Result.
#define TRY(...)                                    \
  __extension__({                                   \
    auto tried = (__VA_ARGS__);                     \
    if (!tried.ok()) return Status(tried.status()); \
    std::move(tried).take();                        \
  })

class [[nodiscard]] Status {
 public:
  // Creates an ok() status.
  Status() = default;

  // Creates an error whose message is the concat() of `parts`.
  // REQUIRES: code is neither kOk, kSystem nor kRaised.
  template <class... Parts>
  Status(Code code, const Parts&... parts)
      : code_(code), message_(concat(parts...)) {
    assert(code != Code::kOk && code != Code::kSystem && code != Code::kRaised);
  }

  // Creates the error of a failed system call.  `error_number` is its errno
  // value.  The message, concat() of `parts`, describes the attempted
  // operation.
  template <class... Parts>
  static Status system(int error_number, const Parts&... parts) {
    Status status;
    status.code_ = Code::kSystem;
    status.error_number_ = error_number;
    status.message_ = concat(parts...);
    return status;
  }

  // Creates the error of a callback that raised `cause`, which is opaque to the
  // core.  `message` describes the purpose of the callback, or is empty.
  static Status raised(std::shared_ptr<const void> cause, std::string message) {
    assert(cause);
    Status status;
    status.code_ = Code::kRaised;
    status.cause_ = std::move(cause);
    status.message_ = std::move(message);
    return status;
  }

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const noexcept { return code_; }

  // Like the members of Result, for TRY.
  [[nodiscard]] const Status& status() const noexcept { return *this; }
  void take() && noexcept {}

  // Returns true if the system or a callback failed.  Such errors describe
  // themselves and do not mean that data are damaged.
  [[nodiscard]] bool is_external() const noexcept {
    return code_ == Code::kSystem || code_ == Code::kRaised;
  }

  // Returns the message; empty if ok().
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // Returns the errno value of a kSystem status, or 0 for other codes.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

  // Returns the exception of a kRaised status, or null for other codes.
  [[nodiscard]] const std::shared_ptr<const void>& cause() const noexcept {
    return cause_;
  }

 private:
  Code code_ = Code::kOk;
  int error_number_ = 0;
  std::string message_;
  std::shared_ptr<const void> cause_;
};

// Either a T, or the Status with the reason for its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function can return either.
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
  // Moves the value out.  REQUIRES: ok().
  T take() && { return std::move(*this).value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace gristmill
