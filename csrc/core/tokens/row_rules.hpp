// Rules for cutting rows of fixed length from a concatenation of documents.
//
// Thread safety: none; plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

// Rows in the order of the documents.
struct ChunkRule {
  // Consecutive documents whose rows start at the first of them.
  struct Part {
    std::size_t documents = 0;
    std::size_t rows = 0;
  };
  std::int64_t row_tokens = 0;
  std::vector<Part> parts;  // They have all documents.
};

// The rows of Megatron's GPTDataset.
struct ShuffleRule {
  std::uint32_t seed = 0;
  // Tokens from one row to the next.
  std::int64_t row_tokens = 0;
  // A row also has the first token of the next one.
  bool has_extra_token = false;
  std::size_t epochs = 0;
  // The number of epochs, from the first, whose documents are shuffled
  // together.  The others are shuffled together, too.
  std::size_t first_epochs = 0;
  std::size_t rows = 0;
  // The number of rows, from the first, that are shuffled together.  The others
  // are shuffled together, too.
  std::size_t first_rows = 0;
  std::int64_t tokens = 0;  // The sum for all documents, once.
};

}  // namespace gristmill
