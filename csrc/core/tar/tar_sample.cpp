#include "core/tar/tar_sample.hpp"

#include <algorithm>
#include <utility>

#include "core/files/verify.hpp"
#include "core/tar/tar_name.hpp"
#include "core/tar/tar_walk.hpp"

namespace gristmill {
namespace {

using Bytes = std::span<const std::byte>;

// Returns whether a sample has the field already; every sample has a key and a
// URL.
bool has_field(const TarSample& sample, std::string_view extension) {
  return extension == "__key__" || extension == "__url__" ||
         std::ranges::find(sample.members, extension,
                           &TarSample::Member::extension) !=
             sample.members.end();
}

}  // namespace

std::string tar_lowercase(std::string_view extension) {
  std::string lower(extension);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
  }
  return lower;
}

Result<TarSample> TarSample::parse(Bytes bytes) {
  const auto read_bytes = [bytes](std::uint64_t at, std::uint64_t size) {
    return Result(bytes.subspan(static_cast<std::size_t>(at),
                                static_cast<std::size_t>(size)));
  };
  TarWalk walk(read_bytes, 0, bytes.size());
  TarSample sample;
  std::uint64_t end = 0;
  while (TRY(walk.next())) {
    const TarMember& member = walk.member();
    if (!member.is_regular) continue;
    const auto field = tar_field(member.name);
    if (!field) continue;
    if (sample.members.empty()) sample.key = field->key;
    std::string extension = tar_lowercase(field->extension);
    if (field->key != sample.key) {
      return damaged("it has members of two samples, ", sample.key, " and ",
                     field->key, ": the file changed");
    }
    if (has_field(sample, extension)) {
      return damaged("the sample ", sample.key, " has two fields ", extension,
                     ", the second of which is ", member.name,
                     ": the names of fields must not differ only in case");
    }
    const auto data = bytes.subspan(static_cast<std::size_t>(member.data),
                                    static_cast<std::size_t>(member.size));
    sample.members.push_back({std::move(extension), data});
    end = member.end();
  }
  if (sample.members.empty() || end != bytes.size()) {
    return damaged("it does not end with a member: the file changed");
  }
  return sample;
}

}  // namespace gristmill
