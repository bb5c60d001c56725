// Descriptors share a limited number of file descriptors, invisibly to readers.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/files/descriptor.hpp"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder()
      : path(fs::temp_directory_path() / ("d" + std::to_string(getpid()))) {
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(int i) const {
    const fs::path name = path / std::to_string(i);
    std::ofstream(name) << static_cast<char>('a' + i % 26);
    return name;
  }
  const fs::path path;
};

std::unique_ptr<Descriptor> open(const std::string& path) {
  auto fd = Descriptor::open(path);
  CHECK(fd.ok());
  struct stat status;
  CHECK_EQ(fstat(fd.value(), &status), 0);
  return std::make_unique<Descriptor>(path, fd.value(), status);
}

char read(const Descriptor& file) {
  auto use = file.use();
  CHECK(use.ok());
  char letter = 0;
  CHECK_EQ(pread(use.value().fd(), &letter, 1, 0), 1);
  return letter;
}

std::vector<std::unique_ptr<Descriptor>> open_many(const Folder& folder,
                                                   int count) {
  std::vector<std::unique_ptr<Descriptor>> files;
  for (int i = 0; i < count; ++i) files.push_back(open(folder.file(i)));
  return files;
}

void test_more_files_than_descriptors_are_readable() {
  Folder folder;
  Descriptor::set_limit(10);
  const auto files = open_many(folder, 60);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 60; ++i) {
      CHECK_EQ(read(*files[static_cast<std::size_t>(i)]), 'a' + i % 26);
      CHECK(Descriptor::open_count() <= 10);
    }
  }
}

void test_descriptor_in_use_is_not_reused() {
  Folder folder;
  Descriptor::set_limit(2);
  const auto first = open(folder.file(0));
  auto use = first->use();
  CHECK(use.ok());
  const auto others = open_many(folder, 20);
  for (const auto& other : others) read(*other);
  char letter = 0;
  CHECK_EQ(pread(use.value().fd(), &letter, 1, 0), 1);
  CHECK_EQ(letter, 'a');
}

void test_replaced_file_is_error() {
  Folder folder;
  Descriptor::set_limit(1);
  const std::string path = folder.file(0);
  const auto first = open(path);
  const auto others = open_many(folder, 5);  // Writes to the same file: 'a'.
  for (const auto& other : others) read(*other);
  fs::rename(folder.file(30), path);
  const auto use = first->use();
  CHECK(!use.ok());
  CHECK_EQ(use.status().message(),
           "the file at this path was replaced after it was opened");
  fs::remove(path);
  CHECK_EQ(first->use().status().error_number(), ENOENT);
}

void test_exhausted_limit_reclaims_descriptors() {
  Folder folder;
  Descriptor::set_limit(4096);
  struct rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few = {32, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto files = open_many(folder, 25);
  const std::string path = folder.file(25);
  std::vector<int> own;  // The user's files take all other descriptors.
  for (int fd = 0; (fd = dup(0)) >= 0;) own.push_back(fd);
  const auto more = open(path);
  CHECK_EQ(read(*more), 'z');
  for (const auto& file : files) read(*file);
  for (const int fd : own) close(fd);
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

void test_closed_file_frees_descriptor() {
  Folder folder;
  const std::string path = folder.file(0);
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 50; ++i) read(*open(path));
  const int after = dup(0);
  close(after);
  CHECK_EQ(before, after);
  CHECK_EQ(Descriptor::open_count(), 0u);
}

void test_threads_share_few_descriptors() {
  Folder folder;
  Descriptor::set_limit(3);
  const auto files = open_many(folder, 12);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&files, t] {
      for (std::size_t i = 0; i < 600; ++i) {
        const std::size_t file = (i * (t + 1)) % files.size();
        CHECK_EQ(read(*files[file]), static_cast<char>('a' + file));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

void test_rewritten_file_is_error() {
  Folder folder;
  Descriptor::set_limit(1);
  const std::string path = folder.file(0);
  const auto first = open(path);
  const auto other = open(folder.file(1));
  read(*other);
  // Repeat until the clock of the file system has advanced.
  const auto before = fs::last_write_time(path);
  while (fs::last_write_time(path) == before) std::ofstream(path) << 'b';
  CHECK(!first->use().ok());
}

void test_forked_child_reuses_descriptors() {
  Folder folder;
  Descriptor::set_limit(10);
  const auto files = open_many(folder, 10);
  const pid_t child = fork();
  if (child == 0) {
    const auto more = open_many(folder, 20);
    for (const auto& file : more) read(*file);
    _exit(Descriptor::open_count() <= 10 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_forked_child_can_read() {
  Folder folder;
  Descriptor::set_limit(2);
  const auto files = open_many(folder, 6);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& file : files) read(*file);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_more_files_than_descriptors_are_readable();
  gristmill::test_descriptor_in_use_is_not_reused();
  gristmill::test_replaced_file_is_error();
  gristmill::test_exhausted_limit_reclaims_descriptors();
  gristmill::test_closed_file_frees_descriptor();
  gristmill::test_threads_share_few_descriptors();
  gristmill::test_rewritten_file_is_error();
  gristmill::test_forked_child_reuses_descriptors();
  gristmill::test_forked_child_can_read();
}
