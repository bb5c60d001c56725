// A sink that keeps the last record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/files/record_reader.hpp"

namespace gristmill {

struct KeptRecord final : RecordReader::Sink {
  Result<std::span<std::byte>> place(std::size_t, std::uint64_t size) override {
    record.resize(size);
    return std::span(record);
  }
  std::vector<std::byte> record;
};

}  // namespace gristmill
