// A LocalFile is a file of the local file system, read with pread() or mapped.
//
// It detects a truncated file if it can: pread() fails at the end of the file.
// Reading a mapped file that was truncated after the last call of has_shrunk()
// raises SIGBUS, so mapping is opt-in.
//
// Thread safety: const methods may overlap.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/descriptor.hpp"
#include "core/files/file.hpp"

namespace gristmill {

class LocalFile final : public File {
 public:
  // The access method: pread() or a mapping. kMmapAll loads all pages of the
  // mapping at once.
  enum class Access { kPread, kMmap, kMmapAll };

  // Opens a regular file for reading.
  static Result<File::Ptr> open(std::string path, Access access);

  ~LocalFile() override;

  // Returns the modification time at opening, in nanoseconds since 1970.
  [[nodiscard]] std::uint64_t version() const noexcept override;

  Status read(std::uint64_t offset, std::span<std::byte> to) const override;
  [[nodiscard]] std::span<const std::byte> mapped() const noexcept override {
    return {map_, map_ == nullptr ? 0 : static_cast<std::size_t>(size())};
  }
  void will_need(std::uint64_t offset,
                 std::uint64_t size) const noexcept override;
  [[nodiscard]] bool has_shrunk() const noexcept override;

  // Detects changes of the size and of the modification time.
  [[nodiscard]] std::string describe_change() const override;

 private:
  LocalFile(std::string path, int fd, const struct stat& status);
  Status map(Access access);

  const Descriptor descriptor_;
  const struct timespec modified_;
  const std::byte* map_ = nullptr;
};

}  // namespace gristmill
