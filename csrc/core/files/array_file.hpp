// An ArrayFile keeps up to four arrays that take long to compute, so that all
// processes can share them.
//
// It is mapped as it is.  All numbers are little-endian.  A reader rejects a
// file with another format, and then computes the arrays again:
//
//   offset  bytes
//        0      8  "GRISTARR"
//        8      4  version of this format, 1
//       12     12  CRC-32C of the last 40 bytes of this header and a third of
//                  the bytes after it, for each third
//       24      8  key: a hash of everything that the arrays depend on
//       32     32  bytes of each array
//       64      -  the arrays, each padded to 64 bytes; then zeros, so that all
//                  are a multiple of 192 bytes
//
// The checksum does not protect against forgery, so users must check the
// numbers in the arrays.
//
// Thread safety: const methods may overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

class ArrayFile {
 public:
  static constexpr std::size_t kMaxArrays = 4;
  using Sizes = std::array<std::uint64_t, kMaxArrays>;

  // Identifies the arrays and the files that may have them.
  struct Place {
    std::uint64_t key = 0;  // A hash of everything that they depend on.
    std::vector<std::string> index_paths;
    // A file that a process locks while it builds the arrays.  It may be
    // missing.
    std::string data_path;
  };

  // Fills the arrays, whose bytes are uninitialized.
  using Build = std::function<Status(
      const std::array<std::span<std::byte>, kMaxArrays>&)>;

  // Returns the arrays of the first file with this key and these sizes in
  // bytes.  Without one, calls `build`, and saves the arrays at the first
  // path that is writable.
  //
  // A thread saves them after this returns.  The exit of the process waits for
  // it.  If the process is killed, no file exists.  When the file is
  // complete, its pages replace those that the arrays were built in.
  //
  // Holds the lock until the file is complete.  If another thread or process
  // has the lock, waits for it, but not much longer than building takes, and
  // then builds the arrays, too.
  static Result<ArrayFile> load_or_build(const Place& place, const Sizes& sizes,
                                         const Build& build);

  // Returns an array, aligned to 64 bytes.  REQUIRES: i < kMaxArrays.
  [[nodiscard]] std::span<const std::byte> array(std::size_t i) const {
    return arrays_.at(i);
  }

  // Returns true if the arrays are in a file, or are being saved.
  [[nodiscard]] bool has_file() const noexcept;

  // Returns the path of the file, or an empty string if it is not saved.  Waits
  // until the file is complete.
  [[nodiscard]] const std::string& path() const;

 private:
  struct NewImage;

  ArrayFile(const Sizes& sizes, std::span<const std::byte> image,
            std::shared_ptr<const void> owner);

  // Returns the arrays of a file.
  static Result<ArrayFile> load(const std::string& path, std::uint64_t key,
                                const Sizes& sizes);

  std::array<std::span<const std::byte>, kMaxArrays> arrays_;
  std::shared_ptr<const void> owner_;  // Keeps the arrays alive.
  std::shared_ptr<NewImage> image_;    // Null if they were loaded.
  std::string loaded_path_;            // Empty if they were built.
};

}  // namespace gristmill
