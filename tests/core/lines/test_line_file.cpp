// Lines of compressed files are those of the text, in any order and thread.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/files/local_file.hpp"
#include "core/kept_record.hpp"
#include "core/lines/framed_file.hpp"
#include "core/lines/line_file.hpp"

namespace {

using gristmill::ChunkCache;
using gristmill::File;
using gristmill::FramedFile;
using gristmill::KeptRecord;
using gristmill::LocalFile;
using gristmill::ScanProgress;
using gristmill::SpanFile;

using FilePtr = std::shared_ptr<const SpanFile>;

constexpr std::int64_t kLines = 20'000;

std::string line(std::int64_t i) {
  return "line " + std::to_string(i) +
         std::string(i % 97 == 0 ? 9'000 : 5, 'x');
}

std::string zstd(std::string_view text) {
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(),
                             text.size(), /*compressionLevel=*/1));
  return frame;
}

std::string gzip(std::string_view text) {
  std::string member(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  CHECK_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(member.data());
  stream.avail_out = static_cast<uInt>(member.size());
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  member.resize(stream.total_out);
  deflateEnd(&stream);
  return member;
}

using Compress = std::string (*)(std::string_view);

// The lines, in frames of `frame_bytes` bytes of text.
std::string compressed(Compress compress, std::size_t frame_bytes) {
  std::string text;
  for (std::int64_t i = 0; i < kLines; ++i) text += line(i) + "\n";
  std::string all;
  for (std::size_t at = 0; at < text.size(); at += frame_bytes) {
    all += compress(std::string_view(text).substr(at, frame_bytes));
  }
  return all;
}

FilePtr open(const std::string& bytes, std::shared_ptr<ChunkCache> cache) {
  const int fd = memfd_create("lines", 0);
  CHECK_EQ(write(fd, bytes.data(), bytes.size()),
           static_cast<ssize_t>(bytes.size()));
  auto file = LocalFile::open("/proc/self/fd/" + std::to_string(fd),
                              LocalFile::Access::kPread);
  CHECK(file.ok());
  close(fd);
  ScanProgress progress;
  auto lines =
      open_line_file(std::move(file).value(), {}, std::move(cache), progress);
  CHECK_EQ(lines.status().message(), "");
  CHECK_EQ(lines.value()->size(), static_cast<std::uint64_t>(kLines));
  return lines.value();
}

std::string read(const SpanFile& file, std::int64_t i) {
  const SpanFile::Request request{i, 0};
  KeptRecord kept;
  CHECK_EQ(file.read(std::span(&request, 1), kept).message(), "");
  return {reinterpret_cast<const char*>(kept.record.data()),
          kept.record.size()};
}

void read_scattered(const SpanFile& file, std::int64_t first) {
  for (std::int64_t i = 0; i < 150; ++i) {
    const std::int64_t record = (first + i * 7'919) % kLines;
    CHECK_EQ(read(file, record), line(record));
  }
}

void test_lines_equal_the_text_with_any_cache() {
  for (const std::size_t frame_bytes : {1'000u, 40'001u, 9'000'000u}) {
    for (const Compress compress : {zstd, gzip}) {
      const std::string bytes = compressed(compress, frame_bytes);
      for (const std::size_t cache_bytes : {0u, 1u, 100'000u, 64u << 20}) {
        const FilePtr file =
            open(bytes, std::make_shared<ChunkCache>(cache_bytes));
        for (std::int64_t i = 0; i < 3; ++i) {
          CHECK_EQ(read(*file, i * 9'999), line(i * 9'999));
        }
      }
    }
  }
}

void test_cache_is_bounded_and_dropped() {
  const auto cache = std::make_shared<ChunkCache>(200'000);
  FilePtr file = open(compressed(gzip, 40'000), cache);
  CHECK_EQ(cache->held_bytes(), 0u);
  read_scattered(*file, 1);
  CHECK(cache->held_bytes() > 0 && cache->held_bytes() <= 200'000);
  file.reset();
  CHECK_EQ(cache->held_bytes(), 0u);
}

void test_small_frames_form_groups() {
  const std::string bytes = compressed(zstd, 1'000);
  const int fd = memfd_create("lines", 0);
  CHECK_EQ(write(fd, bytes.data(), bytes.size()),
           static_cast<ssize_t>(bytes.size()));
  auto file = LocalFile::open("/proc/self/fd/" + std::to_string(fd),
                              LocalFile::Access::kPread);
  ScanProgress progress;
  auto groups =
      FramedFile::scan(*file.value(), gristmill::Compression::kZstd, progress,
                       [](std::uint64_t, std::span<const std::byte>) {});
  close(fd);
  CHECK(groups.ok());
  for (std::uint64_t i = 0; i + 1 < groups.value().size(); ++i) {
    const auto size = groups.value().at(i).decoded_size;
    CHECK(size >= FramedFile::kMinGroupBytes &&
          size < FramedFile::kMinGroupBytes + 1'000);
  }
}

void test_index_of_too_large_frames_is_an_error() {
  gristmill::PackedChunks groups;
  groups.add(0, std::uint64_t{1} << 40);
  groups.finish(4);
  const int fd = memfd_create("lines", 0);
  CHECK_EQ(ftruncate(fd, 4), 0);
  auto file = LocalFile::open("/proc/self/fd/" + std::to_string(fd),
                              LocalFile::Access::kPread);
  close(fd);
  const auto opened =
      FramedFile::open(std::move(file).value(), gristmill::Compression::kZstd,
                       groups, std::make_shared<ChunkCache>(0));
  CHECK_EQ(opened.status().message(),
           "the index of its frames lists 1099511627776 bytes for the frames "
           "at offset 0, which cannot be: delete the index");
}

void test_threads_and_a_forked_child_read() {
  const auto cache = std::make_shared<ChunkCache>(std::size_t{1} << 20);
  const FilePtr file = open(compressed(zstd, 100'000), cache);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { read_scattered(*file, 31 * t); });
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    read_scattered(*file, 77);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  test_lines_equal_the_text_with_any_cache();
  test_cache_is_bounded_and_dropped();
  test_small_frames_form_groups();
  test_index_of_too_large_frames_is_an_error();
  test_threads_and_a_forked_child_read();
}
