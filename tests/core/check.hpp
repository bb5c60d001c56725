// If a check fails, CHECK and CHECK_EQ print it with its file and line, and
// abort the test.
//
// Unlike assert, they also work in release builds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>

#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      std::cerr << __FILE__ << ':' << __LINE__ << ": CHECK(" #condition \
                << ") failed" << std::endl;                             \
      std::abort();                                                     \
    }                                                                   \
  } while (false)

// REQUIRES: both sides have operators << and ==.
#define CHECK_EQ(left, right)                                          \
  do {                                                                 \
    const auto check_left = (left);                                    \
    const auto check_right = (right);                                  \
    if (!(check_left == check_right)) {                                \
      std::cerr << __FILE__ << ':' << __LINE__ << ": " #left " is "    \
                << check_left << ", but " #right " is " << check_right \
                << std::endl;                                          \
      std::abort();                                                    \
    }                                                                  \
  } while (false)
