// A ReaderHandle gives Python a RecordReader that can be closed.  The bindings
// of each kind of reader derive from it.
//
// Thread safety: all functions require the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/record_reader.hpp"
#include "core/files/verify.hpp"

namespace gristmill::bind {

using Records = py::array_t<std::int64_t, py::array::c_style>;
using ReaderPtr = std::shared_ptr<const RecordReader>;

// Raises CorruptRecord.  `position` is the record's position in a batch, if
// given.  The message need not be valid UTF-8.
[[noreturn]] void raise_corrupt(
    const std::string& message,
    std::optional<std::size_t> position = std::nullopt);

// Like check(), but kInvalidArgument means a damaged file here, so this raises
// CorruptRecord.
// REQUIRES: the GIL is held.
void check_file(const Status& status);

template <class T>
T checked_file(Result<T> result) {
  check_file(result.status());
  return std::move(result).value();
}

// A FileStamp in Python: size and version.
using Stamp = std::pair<std::uint64_t, std::uint64_t>;

inline Stamp stamp_of(const File& file) {
  const auto stamp = FileStamp::of(file);
  return {stamp.size, stamp.version};
}

inline std::optional<FileStamp> to_stamp(const std::optional<Stamp>& stamp) {
  if (!stamp) return std::nullopt;
  return FileStamp{stamp->first, stamp->second};
}

// Parses the Python name of an option.
inline Verify verify_of(std::string_view name) {
  if (name == "all") return Verify::kAll;
  if (name == "headers") return Verify::kHeaders;
  if (name == "none") return Verify::kNone;
  throw py::value_error(
      concat("verify must be 'all', 'headers' or 'none', got '", name, "'"));
}

class ReaderHandle {
 public:
  // If `dtype` is not None, records are arrays of it.
  explicit ReaderHandle(ReaderPtr reader, py::object dtype = py::none())
      : reader_(std::move(reader)),
        path_(reader_->path()),
        dtype_(std::move(dtype)) {}
  virtual ~ReaderHandle() = default;
  ReaderHandle(const ReaderHandle&) = delete;
  ReaderHandle& operator=(const ReaderHandle&) = delete;

  virtual void close() { reader_.reset(); }
  [[nodiscard]] bool closed() const { return reader_ == nullptr; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const py::object& dtype() const { return dtype_; }

  // Returns a reference that keeps the reader alive after close().
  [[nodiscard]] ReaderPtr reader() const {
    if (!reader_) throw py::value_error(path_ + ": the file is closed");
    return reader_;
  }

  // Checks and sorts `records`, and prepares the handle to read them.
  std::vector<RecordReader::Request> plan(
      const RecordReader& reader, std::span<const std::int64_t> records) {
    auto requests = checked_file(reader.plan(records));
    prepare(requests);
    return requests;
  }

 protected:
  // Makes the reader ready for `requests`.
  virtual void prepare(std::span<const RecordReader::Request>) {}

 private:
  ReaderPtr reader_;
  std::string path_;
  py::object dtype_;
};

// A handle of a reader of type Reader.
template <class Reader>
class HandleOf final : public ReaderHandle {
 public:
  using ReaderHandle::ReaderHandle;

  [[nodiscard]] std::shared_ptr<const Reader> file() const {
    return std::static_pointer_cast<const Reader>(reader());
  }
};

}  // namespace gristmill::bind
