// RowFiller: elements that fit, are split, or wait for the next row.
#include <cstdint>
#include <random>
#include <vector>

#include "core/batches/concat_split.hpp"
#include "core/check.hpp"

namespace {

using gristmill::CellRange;
using gristmill::RowFiller;
using Taken = RowFiller::Taken;
using Ranges = std::vector<CellRange>;

int number(Taken taken) { return static_cast<int>(taken); }

void check_ranges(const Ranges& found, const Ranges& expected) {
  CHECK_EQ(found.size(), expected.size());
  for (std::size_t f = 0; f < found.size(); ++f) {
    CHECK_EQ(found[f].begin, expected[f].begin);
    CHECK_EQ(found[f].end, expected[f].end);
  }
}

void test_element_is_split_at_end_of_row() {
  RowFiller filler({{8, false}, {4, false}});
  Ranges taken(2);
  CHECK_EQ(number(filler.plan(Ranges{{0, 3}, {0, 3}}, taken)),
           number(Taken::kAll));
  filler.commit(taken);
  CHECK_EQ(filler.used(0), 3);
  CHECK_EQ(number(filler.plan(Ranges{{5, 7}, {1, 9}}, taken)),
           number(Taken::kPart));
  check_ranges(taken, {{5, 7}, {1, 2}});
  filler.commit(taken);
  CHECK_EQ(filler.used(0), 5);
  CHECK_EQ(filler.used(1), 4);
  filler.clear();
  CHECK_EQ(filler.used(1), 0);
}

void test_element_that_does_not_fit_waits() {
  RowFiller filler({{2, false}, {2, false}});
  Ranges taken(2);
  filler.commit(Ranges{{0, 2}, {0, 1}});
  CHECK_EQ(number(filler.plan(Ranges{{0, 1}, {0, 0}}, taken)),
           number(Taken::kNothing));
  CHECK_EQ(number(filler.plan(Ranges{{0, 1}, {0, 1}}, taken)),
           number(Taken::kPart));
  check_ranges(taken, {{0, 0}, {0, 1}});
  CHECK_EQ(number(filler.plan(Ranges{{0, 0}, {0, 0}}, taken)),
           number(Taken::kAll));
}

void test_whole_feature_is_not_split() {
  RowFiller filler({{4, false}, {2, true}});
  Ranges taken(2);
  CHECK_EQ(number(filler.plan(Ranges{{0, 9}, {0, 2}}, taken)),
           number(Taken::kPart));
  check_ranges(taken, {{0, 4}, {0, 2}});
  filler.commit(Ranges{{0, 1}, {0, 1}});
  const Ranges wide{{0, 1}, {0, 2}};
  CHECK_EQ(number(filler.plan(wide, taken)), number(Taken::kNothing));
  CHECK_EQ(filler.whole_misfit(wide), 1);
  CHECK_EQ(filler.whole_misfit(Ranges{{0, 9}, {0, 1}}), -1);
}

void test_full_row_has_one_full_feature() {
  const RowFiller filler({{4, false}, {2, true}});
  CHECK(filler.is_full_row(Ranges{{0, 4}, {0, 1}}));
  CHECK(filler.is_full_row(Ranges{{0, 1}, {0, 2}}));
  CHECK(!filler.is_full_row(Ranges{{0, 3}, {0, 1}}));
  CHECK(!filler.is_full_row(Ranges{{0, 4}, {0, 3}}));
}

void test_each_cell_is_in_one_row_in_order() {
  std::mt19937 random(2);
  RowFiller filler({{7, false}, {5, false}});
  Ranges taken(2);
  for (int element = 0; element < 5000; ++element) {
    Ranges rest{{0, static_cast<std::int64_t>(random() % 20)},
                {0, static_cast<std::int64_t>(random() % 20)}};
    for (auto found = Taken::kPart; found != Taken::kAll;) {
      found = filler.plan(rest, taken);
      if (found != Taken::kNothing) {
        filler.commit(taken);
        for (std::size_t f = 0; f < 2; ++f) {
          CHECK_EQ(taken[f].begin, rest[f].begin);
          rest[f].begin = taken[f].end;
        }
      }
      if (found != Taken::kAll) {
        CHECK(filler.used(0) == 7 || filler.used(1) == 5);
        filler.clear();
      }
    }
    CHECK_EQ(rest[0].size(), 0);
    CHECK_EQ(rest[1].size(), 0);
  }
}

}  // namespace

int main() {
  test_element_is_split_at_end_of_row();
  test_element_that_does_not_fit_waits();
  test_whole_feature_is_not_split();
  test_full_row_has_one_full_feature();
  test_each_cell_is_in_one_row_in_order();
}
