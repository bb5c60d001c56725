// A LocalFile is a file of the system's, read by pread() or mapped.
//
// It notices a file that became shorter as far as it can: pread() meets the
// end and says so.  Reading a mapped file that was truncated after shrunk()
// last looked raises SIGBUS; that is why mapping is the caller's choice.
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
  // How bytes are had: copied by pread(), or mapped into memory, where they may
  // all be needed soon.
  enum class Access { kPread, kMmap, kMmapAll };

  // Opens a regular file for reading.
  static Result<File::Ptr> open(std::string path, Access access);

  ~LocalFile() override;

  // When it had last been written to, in nanoseconds since 1970.
  [[nodiscard]] std::uint64_t version() const noexcept override;

  Status read(std::uint64_t offset, std::span<std::byte> to) const override;
  [[nodiscard]] std::span<const std::byte> mapped() const noexcept override {
    return {map_, map_ == nullptr ? 0 : static_cast<std::size_t>(size())};
  }
  void will_need(std::uint64_t offset,
                 std::uint64_t size) const noexcept override;
  [[nodiscard]] bool shrunk() const noexcept override;

  // As far as size and time of change tell.
  [[nodiscard]] std::string change() const override;

 private:
  LocalFile(std::string path, int fd, const struct stat& status);
  Status map(Access access);

  const Descriptor descriptor_;
  const struct timespec modified_;
  const std::byte* map_ = nullptr;
};

}  // namespace gristmill
