#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/files/index_file.hpp"
#include "core/files/local_file.hpp"
#include "core/kept_record.hpp"
#include "core/tar/tar_file.hpp"
#include "core/tar/tar_sample.hpp"
#include "core/tar/tar_writer.hpp"

namespace gristmill {
namespace {

Result<std::shared_ptr<const TarFile>> open(
    const std::string& path, const std::vector<std::string>& kept = {}) {
  ScanProgress progress;
  auto file = LocalFile::open(path, LocalFile::Access::kPread);
  CHECK(file.ok());
  return TarFile::open(std::move(file).value(), {kept}, progress);
}

std::string error_of(const Bytes& contents) {
  const TemporaryFile disk(contents);
  const auto file = open(disk.path());
  CHECK(!file.ok());
  CHECK(file.status().code() == Code::kInvalidArgument);
  CHECK(file.status().message().starts_with(disk.path() + ": "));
  return file.status().message().substr(disk.path().size() + 2);
}

// Returns a sample as "key extension=data ...", or the error.
std::string sample_of(const TarFile& file, std::int64_t number) {
  KeptRecord sink;
  const RecordReader::Request request{number, 0};
  const Status status = file.read({&request, 1}, sink);
  if (!status.ok()) return status.message();
  auto parsed = TarSample::parse(sink.record);
  CHECK(parsed.ok());
  const TarSample& sample = parsed.value();
  std::string text = sample.key;
  for (const auto& [extension, data] : sample.members) {
    text +=
        " " + extension + "=" +
        std::string(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return text;
}

void test_members_with_one_key_are_a_sample() {
  const TemporaryFile disk(tar_of({
      tar_member("d/", "", '5'),
      tar_member("d/0.txt", "zero"),
      tar_member("no extension", "left out"),
      tar_member("d/0.Label", ""),
      tar_member("d/link.txt", "", '2'),
      tar_member("d/1.txt", std::string(600, 'x')),
  }));
  auto opened = open(disk.path());
  CHECK(opened.ok());
  const TarFile& file = *opened.value();
  CHECK_EQ(file.size(), 2u);
  CHECK_EQ(sample_of(file, 0), "d/0 txt=zero label=");
  CHECK_EQ(sample_of(file, 1), "d/1 txt=" + std::string(600, 'x'));
}

void test_extended_headers_name_member() {
  const std::string name(300, 'n');
  const TemporaryFile disk(tar_of({
      tar_member("././@LongLink", name + ".txt", 'L'),
      tar_member("short.txt", "long"),
      tar_member("pax", "13 comment=x\n", 'g'),
      tar_member("pax", "17 path=a/b.jpg/\n", 'x'),
      tar_member("short.txt", "pax"),
  }));
  auto opened = open(disk.path());
  CHECK(opened.ok());
  CHECK_EQ(sample_of(*opened.value(), 0), name + " txt=long");
  CHECK_EQ(sample_of(*opened.value(), 1), "a/b jpg=pax");
}

void test_damage_error_has_offset() {
  const Bytes member = tar_member("0.txt", "zero");
  CHECK_EQ(error_of({}), "the file is empty");
  CHECK_EQ(error_of(Bytes(member.begin(), member.begin() + 514)),
           "the member at offset 0: it has 4 bytes, but the file ends after 2: "
           "it is still being written, or was not copied whole");
  Bytes damaged = tar_of({member, member});
  damaged[kTarBlock * 2] ^= std::byte{1};
  CHECK_EQ(error_of(damaged),
           "the member at offset 1024: its header at offset 1024 is damaged");
  CHECK_EQ(error_of(tar_of({tar_member("p", "99 path=x\n", 'x'), member})),
           "the member at offset 0: its pax header is damaged");
  CHECK_EQ(error_of(tar_of({tar_member("p", "9 path=x\n", 'x')})),
           "the member at offset 0: zeros follow its headers");
  CHECK_EQ(error_of(tar_of({tar_member("p", "9 path=x\n", 'g'), member})),
           "the member at offset 0: a global pax header sets the path of all "
           "members");
}

void test_missing_end_blocks_are_accepted() {
  Bytes file = tar_member("0.txt", "zero");
  file.resize(kTarBlock + 4);
  const TemporaryFile disk(file);
  CHECK_EQ(sample_of(*open(disk.path()).value(), 0), "0 txt=zero");
}

void test_duplicate_fields_are_error_of_sample() {
  const TemporaryFile disk(tar_of(
      {tar_member("0.txt", ""), tar_member("1.a", ""), tar_member("1.A", "")}));
  const auto file = open(disk.path()).value();
  CHECK_EQ(sample_of(*file, 0), "0 txt=");
  CHECK(sample_of(*file, 1).find("sample 1 at offset 512: the sample 1 has two "
                                 "fields a") != std::string::npos);
}

void test_saved_index_is_used_if_it_matches() {
  const Bytes contents =
      tar_of({tar_member("0.txt", "zero"), tar_member("1.txt", "one")});
  const TemporaryFile disk(contents);
  const TemporaryFile index(Bytes{});
  const std::vector<std::string> kept{"/proc/none/such", index.path()};
  const auto places = [&] {
    ScanProgress progress;
    auto file = LocalFile::open(disk.path(), LocalFile::Access::kPread).value();
    auto found = TarIndex::read(*file, kept, progress);
    return std::pair(std::move(found).value().place(1).begin,
                     progress.done_bytes.load());
  };
  CHECK(places() == std::pair(2 * kTarBlock, contents.size()));
  CHECK(places() == std::pair(2 * kTarBlock, 0 * kTarBlock));
  // Another file of the same size.
  const Bytes other =
      tar_of({tar_member("d", "", '5'), tar_member("0.txt", "zero"),
              tar_member("1.txt", "")});
  CHECK_EQ(other.size(), contents.size());
  const int fd = ::open(disk.path().c_str(), O_WRONLY);
  CHECK_EQ(pwrite(fd, other.data(), other.size(), 0),
           static_cast<ssize_t>(other.size()));
  const struct timespec times[2] = {{5, 0}, {5, 0}};
  CHECK_EQ(futimens(fd, times), 0);
  close(fd);
  CHECK(places() == std::pair(3 * kTarBlock, contents.size()));
}

void test_forged_index_is_error() {
  const TemporaryFile disk(
      tar_of({tar_member("0.txt", "zero"), tar_member("1.txt", "one")}));
  const TemporaryFile index(Bytes{});
  const auto file =
      LocalFile::open(disk.path(), LocalFile::Access::kPread).value();
  for (const std::uint64_t size : {516, 1 << 20}) {
    IndexFile forged;
    forged.origin = {FileStamp::of(*file), 0x31726174};
    forged.num_records = 1;
    forged.chunks.add(512, size);
    forged.chunks.finish(3072);
    CHECK(forged.save(index.path()).ok());
    const auto opened = open(disk.path(), {index.path()}).value();
    CHECK(sample_of(*opened, 0).find("sample 0 at offset 512") !=
          std::string::npos);
  }
}

void test_changed_headers_are_error_of_sample() {
  const TemporaryFile disk(
      tar_of({tar_member("0.a", ""), tar_member("0.b", "")}));
  const auto file = open(disk.path()).value();
  const Bytes other = tar_member("1.b", "");
  const int fd = ::open(disk.path().c_str(), O_WRONLY);
  CHECK_EQ(pwrite(fd, other.data(), other.size(), kTarBlock), ssize_t{512});
  close(fd);
  CHECK(sample_of(*file, 0).find("members of two samples, 0 and 1") !=
        std::string::npos);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_members_with_one_key_are_a_sample();
  test_extended_headers_name_member();
  test_damage_error_has_offset();
  test_missing_end_blocks_are_accepted();
  test_duplicate_fields_are_error_of_sample();
  test_saved_index_is_used_if_it_matches();
  test_forged_index_is_error();
  test_changed_headers_are_error_of_sample();
}
