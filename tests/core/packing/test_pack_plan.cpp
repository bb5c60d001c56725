// A plan has every token once in each epoch, and its rows do not depend on the
// calls before.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/packing/pack_plan.hpp"

using gristmill::Code;
using gristmill::DocumentLengths;
using gristmill::LongDocuments;
using gristmill::PackMethod;
using gristmill::PackPlan;

namespace {

using Numbers = std::vector<std::int64_t>;
using Plan = std::unique_ptr<PackPlan>;

const Numbers& some_lengths() {
  static const Numbers lengths = [] {
    std::mt19937 random(1);
    Numbers numbers(1000);
    for (auto& number : numbers) number = random() % 50 * (random() % 4);
    return numbers;
  }();
  return lengths;
}

PackPlan::Options some_options() {
  return {.capacity = 64, .window = 150, .seed = 5, .epochs = 2};
}

Plan plan_of(const PackPlan::Options& options,
             const Numbers& lengths = some_lengths()) {
  return PackPlan::of({std::as_bytes(std::span(lengths)), 8}, options).take();
}

Numbers all_rows(const PackPlan& plan) {
  Numbers keys(
      static_cast<std::size_t>(plan.first_row(plan.options().epochs).value()));
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

bool are_equal(const PackPlan::Rows& left, const PackPlan::Rows& right) {
  return left.offsets == right.offsets && left.documents == right.documents &&
         left.begins == right.begins && left.ends == right.ends;
}

// Checks that epoch `epoch` has each token once.
void check_epoch(const PackPlan& plan, std::int64_t epoch) {
  const auto& options = plan.options();
  const auto first = plan.first_row(epoch).value();
  Numbers keys(
      static_cast<std::size_t>(plan.first_row(epoch + 1).value() - first));
  std::iota(keys.begin(), keys.end(), first);
  const auto rows = plan.rows(keys).take();
  std::vector<std::pair<std::int64_t, std::int64_t>> spans[1000];
  for (std::size_t row = 0; row < keys.size(); ++row) {
    std::int64_t tokens = 0;
    const auto begin = static_cast<std::size_t>(rows.offsets[row]);
    const auto end = static_cast<std::size_t>(rows.offsets[row + 1]);
    CHECK(begin < end);
    for (auto i = begin; i < end; ++i) {
      // A document without tokens may have extra features.
      CHECK(rows.begins[i] < rows.ends[i] || !options.extras.empty());
      tokens += rows.ends[i] - rows.begins[i];
      spans[rows.documents[i]].emplace_back(rows.begins[i], rows.ends[i]);
    }
    CHECK(tokens <= options.capacity);
  }
  for (std::size_t document = 0; document < 1000; ++document) {
    std::ranges::sort(spans[document]);
    std::int64_t next = 0;
    for (const auto& [begin, end] : spans[document]) {
      CHECK_EQ(begin, next);
      next = end;
    }
    const auto length = some_lengths()[document];
    const bool dropped = length > options.capacity &&
                         options.long_documents == LongDocuments::kDrop;
    CHECK_EQ(next, dropped ? 0 : length);
  }
}

void test_epoch_has_every_token_once() {
  for (const auto method : {PackMethod::kBestFit, PackMethod::kFirstFit,
                            PackMethod::kLongestFirst, PackMethod::kSplit}) {
    for (const auto rule : {LongDocuments::kCut, LongDocuments::kDrop}) {
      for (const bool grouped : {false, true}) {
        auto options = some_options();
        options.method = method;
        options.long_documents = rule;
        if (grouped) {
          options.span_costs.assign(65, 1.0);
          options.group_rows = 8;
        }
        const auto plan = plan_of(options);
        check_epoch(*plan, 0);
        check_epoch(*plan, 1);
      }
    }
  }
}

// Each key first, in a new plan, without a count of the rows.
void test_rows_do_not_depend_on_earlier_calls() {
  auto options = some_options();
  options.span_costs.assign(65, 1.0);
  options.group_rows = 8;
  const auto plan = plan_of(options);
  const auto keys = all_rows(*plan);
  for (std::size_t i = 0; i < keys.size(); i += 41) {
    const auto other = plan_of(options);
    CHECK(are_equal(other->rows({&keys[i], 1}).value(),
                    plan->rows({&keys[i], 1}).value()));
  }
  auto shuffled = keys;
  std::ranges::shuffle(shuffled, std::mt19937(3));
  const auto rows = plan_of(options)->rows(shuffled).take();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = plan->rows({&shuffled[i], 1}).take();
    const auto begin = static_cast<std::ptrdiff_t>(rows.offsets[i]);
    const auto end = static_cast<std::ptrdiff_t>(rows.offsets[i + 1]);
    CHECK(std::ranges::equal(
        row.documents, std::span(rows.documents)
                           .subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(end - begin))));
  }
}

void test_threads_get_equal_rows() {
  const auto plan = plan_of(some_options());
  const auto keys = all_rows(*plan_of(some_options()));
  const auto expected = plan_of(some_options())->rows(keys).take();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      CHECK_EQ(plan->first_row(1).value(), plan->first_row(1).value());
      CHECK(are_equal(plan->rows(keys).value(), expected));
    });
  }
  for (auto& thread : threads) thread.join();
}

void test_child_continues_to_use_the_plan() {
  const auto plan = plan_of(some_options());
  const std::int64_t key = 3;
  const auto expected = plan->rows({&key, 1}).take();
  const pid_t child = fork();
  if (child == 0) {
    const bool equal = are_equal(plan->rows({&key, 1}).value(), expected);
    _exit(equal && plan->first_row(2).ok() ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_added_window_ends_replace_counting() {
  const auto plan = plan_of(some_options());
  const auto rows = plan->first_row(2).value();
  const auto other = plan_of(some_options());
  CHECK(other->add_window_ends(plan->window_ends()).ok());
  CHECK(other->window_ends() == plan->window_ends());
  CHECK_EQ(other->first_row(2).value(), rows);
  const Numbers too_many(1000, 1);
  CHECK(other->add_window_ends(too_many).code() == Code::kInvalidArgument);
  CHECK(other->add_window_ends(Numbers{3, 2}).code() == Code::kInvalidArgument);
}

void test_row_out_of_range_is_error() {
  const auto plan = plan_of(some_options());
  const auto rows = plan->first_row(2).value();
  for (const std::int64_t key : {std::int64_t{-1}, rows, INT64_MAX}) {
    CHECK(plan->rows({&key, 1}).status().code() == Code::kOutOfRange);
  }
  CHECK(plan->first_row(3).status().code() == Code::kOutOfRange);
  CHECK(plan->first_row(-1).status().code() == Code::kOutOfRange);
  const Numbers none;
  CHECK_EQ(plan_of(some_options(), none)->first_row(2).value(), 0);
  const Numbers empty(7);
  CHECK_EQ(plan_of(some_options(), empty)->first_row(2).value(), 0);
}

void test_invalid_options_are_errors() {
  const auto message = [](auto change) {
    auto options = some_options();
    change(options);
    const auto& lengths = some_lengths();
    return PackPlan::of({std::as_bytes(std::span(lengths)), 8}, options)
        .status()
        .message();
  };
  CHECK_EQ(message([](auto& options) { options.capacity = 0; }),
           "capacity must be in [1, 2**24], got 0");
  CHECK_EQ(message([](auto& options) { options.window = 0; }),
           "window must be in [1, 2**31), got 0");
  CHECK_EQ(message([](auto& options) { options.epochs = 0; }),
           "num_epochs must be at least 1, got 0");
  CHECK_EQ(message([](auto& options) { options.group_rows = 0; }),
           "group_rows must be at least 1, got 0");
  CHECK_EQ(message([](auto& options) { options.span_costs = {1}; }),
           "span_costs must have capacity + 1 = 65 items, got 1");
  CHECK_EQ(message([](auto& options) {
             options.span_costs.assign(65, 1);
             options.span_costs[3] = -1;
           }),
           "span_costs must be in [0, 1e100], got -1.000000 for 3 tokens");
}

// A document of more than 2**31 rows.
void test_window_with_too_many_spans_is_error() {
  const Numbers lengths{std::int64_t{1} << 40};
  for (const auto method : {PackMethod::kBestFit, PackMethod::kSplit}) {
    auto options = some_options();
    options.method = method;
    const auto plan = plan_of(options, lengths);
    const std::int64_t key = 0;
    CHECK(plan->rows({&key, 1}).status().code() == Code::kInvalidArgument);
    CHECK(plan->first_row(1).status().code() == Code::kInvalidArgument);
  }
}

const Numbers& some_images() {
  static const Numbers lengths = [] {
    std::mt19937 random(2);
    Numbers numbers(1000);
    for (auto& number : numbers) number = random() % 9 * (random() % 2);
    return numbers;
  }();
  return lengths;
}

PackPlan::Options with_images(PackPlan::Options options,
                              std::int64_t capacity = 16) {
  options.extras.push_back(
      {.name = "images",
       .lengths = {std::as_bytes(std::span(some_images())), 8},
       .capacity = capacity});
  return options;
}

// Checks the rows of all methods, also if they are moved between rows.
void test_extra_features_are_whole_and_fit() {
  for (const auto method : {PackMethod::kBestFit, PackMethod::kFirstFit,
                            PackMethod::kLongestFirst, PackMethod::kSplit}) {
    for (const bool grouped : {false, true}) {
      auto options = with_images(some_options());
      options.method = method;
      if (grouped) {
        options.span_costs.assign(65, 1.0);
        options.group_rows = 8;
      }
      const auto plan = plan_of(options);
      check_epoch(*plan, 0);
      check_epoch(*plan, 1);
      const auto keys = all_rows(*plan);
      const auto rows = plan->rows(keys).take();
      std::int64_t all_images = 0;
      for (std::size_t row = 0; row < keys.size(); ++row) {
        std::int64_t images = 0;
        for (auto i = static_cast<std::size_t>(rows.offsets[row]);
             i < static_cast<std::size_t>(rows.offsets[row + 1]); ++i) {
          if (rows.begins[i] > 0) continue;
          images += some_images()[static_cast<std::size_t>(rows.documents[i])];
        }
        CHECK(images <= 16);
        all_images += images;
      }
      CHECK_EQ(all_images,
               2 * std::accumulate(some_images().begin(), some_images().end(),
                                   std::int64_t{0}));
    }
  }
}

void test_invalid_extra_features_are_errors() {
  const auto message = [](const PackPlan::Options& options) {
    const auto& lengths = some_lengths();
    return PackPlan::of({std::as_bytes(std::span(lengths)), 8}, options)
        .status()
        .message();
  };
  CHECK_EQ(message(with_images(some_options(), 0)),
           "capacity of images must be in [1, 2**24], got 0");
  const auto first =
      std::ranges::find(some_images(), 8) - some_images().begin();
  CHECK_EQ(
      message(with_images(some_options(), 7)),
      "images of document " + std::to_string(first) +
          " must have at most 7 cells, because only the first feature is "
          "cut, got 8. Use longer rows of images, shorten the document, or "
          "pass long_documents=\"drop\"");
  auto options = with_images(some_options());
  const Numbers few(3);
  options.extras[0].lengths = {std::as_bytes(std::span(few)), 8};
  CHECK_EQ(message(options),
           "images must have 1000 lengths, one for each document, got 3");
  const Numbers negative(1000, -1);
  options.extras[0].lengths = {std::as_bytes(std::span(negative)), 8};
  CHECK_EQ(message(options),
           "images: lengths must be at least 0, got -1 for document 0");
}

// Fixed, so that later versions continue the plans of earlier ones.
void test_values_do_not_change() {
  const Numbers lengths{5, 9, 1, 4, 7, 3, 2, 8};
  const auto plan =
      plan_of({.capacity = 10, .window = 4, .seed = 7, .epochs = 1}, lengths);
  const auto rows = plan->rows(all_rows(*plan)).take();
  CHECK(rows.offsets == Numbers({0, 1, 3, 4, 6, 8}));
  CHECK(rows.documents == Numbers({7, 0, 3, 4, 2, 1, 5, 6}));
  const Numbers images{0, 2, 3, 0, 1, 1, 0, 2};
  const auto other =
      plan_of({.capacity = 10,
               .window = 8,
               .extras = {{.name = "images",
                           .lengths = {std::as_bytes(std::span(images)), 8},
                           .capacity = 3}}},
              lengths);
  const auto found = other->rows(all_rows(*other)).take();
  CHECK(found.offsets == Numbers({0, 3, 4, 6, 8}));
  CHECK(found.documents == Numbers({0, 2, 3, 1, 4, 5, 6, 7}));
}

}  // namespace

int main() {
  test_epoch_has_every_token_once();
  test_rows_do_not_depend_on_earlier_calls();
  test_threads_get_equal_rows();
  test_child_continues_to_use_the_plan();
  test_added_window_ends_replace_counting();
  test_row_out_of_range_is_error();
  test_invalid_options_are_errors();
  test_window_with_too_many_spans_is_error();
  test_extra_features_are_whole_and_fit();
  test_invalid_extra_features_are_errors();
  test_values_do_not_change();
}
