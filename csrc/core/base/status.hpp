// Status says how a core call ended; Result carries its value as well.
//
// The core throws nothing of its own: whatever can fail returns one of these,
// and the compiler complains about a caller that ignores it.  A binding turns
// each Code into the Python exception named beside it.
//
// Thread safety: plain values, shared like an int.
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
  kRaised,           // What a callback raised, which is cause()
};

// Returns strings and whole numbers as one text.
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

// What runs into a Result that failed, or a Status, ends the function with its
// Status; else TRY(result) is the value of the result.
#define TRY(...)                                    \
  __extension__({                                   \
    auto tried = (__VA_ARGS__);                     \
    if (!tried.ok()) return Status(tried.status()); \
    std::move(tried).take();                        \
  })

class [[nodiscard]] Status {
 public:
  // The call succeeded.
  Status() = default;

  // The message is the concat() of `parts`.
  // REQUIRES: code is neither kOk, kSystem nor kRaised.
  template <class... Parts>
  Status(Code code, const Parts&... parts)
      : code_(code), message_(concat(parts...)) {
    assert(code != Code::kOk && code != Code::kSystem && code != Code::kRaised);
  }

  // A system call failed with `error_number`, an errno value; the message,
  // concat() of `parts`, says what was tried.
  template <class... Parts>
  static Status system(int error_number, const Parts&... parts) {
    Status status;
    status.code_ = Code::kSystem;
    status.error_number_ = error_number;
    status.message_ = concat(parts...);
    return status;
  }

  // A callback raised `cause`, of which the core knows no more than that it
  // passes it on; `message` says what for it was called, or is empty.
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

  // As those of a Result, for TRY.
  [[nodiscard]] const Status& status() const noexcept { return *this; }
  void take() && noexcept {}

  // True if the system or a callback failed, which says why itself: there were
  // no data that could be found wrong.
  [[nodiscard]] bool is_external() const noexcept {
    return code_ == Code::kSystem || code_ == Code::kRaised;
  }

  // Empty when ok().
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // The errno value of a kSystem status, 0 for any other.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

  // What a kRaised status passes on, null for any other.
  [[nodiscard]] const std::shared_ptr<const void>& cause() const noexcept {
    return cause_;
  }

 private:
  Code code_ = Code::kOk;
  int error_number_ = 0;
  std::string message_;
  std::shared_ptr<const void> cause_;
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
  // As value(), moved out.
  T take() && { return std::move(*this).value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace gristmill
