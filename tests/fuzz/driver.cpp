// Runs a fuzz target where libFuzzer is not at hand.
//
//     fuzz_record_file <corpus folder> <inputs> <seed>
//
// Runs every file of the corpus as it is, and then as many inputs made of them
// by random changes; the same seed makes the same inputs.  The input at hand
// is in <target>-input in the current folder if the target dies.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

std::vector<Input> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<Input> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in),
                        std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Input mutate(const Input& input) {
    Input out = input;
    for (std::size_t i = 1 + below(4); i > 0 && !out.empty(); --i) change(out);
    return out;
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  void change(Input& input) {
    // Numbers that are likely to be a limit of something.
    static constexpr std::array<std::uint8_t, 8> bytes = {
        0x00, 0x01, 0x7f, 0x80, 0xff, 0x0a, 0x10, 0xfe};
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t run =
        1 + below(std::min<std::size_t>(16, input.size() - at));
    const auto end = place + static_cast<std::ptrdiff_t>(run);
    switch (below(8)) {
      case 0:
      case 1:
        *place ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        *place = bytes[below(bytes.size())];
        break;
      case 3:
        *place = static_cast<std::uint8_t>(random_());
        break;
      case 4:
        std::fill(place, end, bytes[below(bytes.size())]);
        break;
      case 5: {
        const Input copy(place, end);
        const std::size_t to = below(input.size() - run + 1);
        std::ranges::copy(copy,
                          input.begin() + static_cast<std::ptrdiff_t>(to));
        break;
      }
      case 6: {
        const Input copy(place, end);
        input.insert(place, copy.begin(), copy.end());
        break;
      }
      default:
        input.erase(place, end);
    }
  }

  std::mt19937_64 random_;
};

// A shared mapping of a file: what is in it survives the process.
class Witness {
 public:
  explicit Witness(std::size_t size) : size_(size + sizeof(std::size_t)) {
    const int fd = open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_)) != 0) abort();
    at_ = static_cast<std::uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    if (at_ == MAP_FAILED) abort();
    close(fd);
  }
  ~Witness() { unlink(name_.c_str()); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  void keep(const Input& input) {
    std::copy_n(input.begin(), std::min(input.size(), size_), at_);
  }

 private:
  // Targets may run side by side.
  const std::string name_ =
      std::string(program_invocation_short_name) + "-input";
  std::size_t size_;
  std::uint8_t* at_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s <corpus> <inputs> <seed>\n", argv[0]);
    return 2;
  }
  const auto corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus in %s\n", argv[0], argv[1]);
    return 2;
  }
  std::size_t largest = 0;
  for (const Input& input : corpus) largest = std::max(largest, input.size());
  Witness witness(largest + 100);
  for (const Input& input : corpus) {
    witness.keep(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  Mutator mutator(std::strtoull(argv[3], nullptr, 10));
  for (auto left = std::strtoull(argv[2], nullptr, 10); left > 0; --left) {
    const Input input = mutator.mutate(corpus[mutator.below(corpus.size())]);
    witness.keep(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}
