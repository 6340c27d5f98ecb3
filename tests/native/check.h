// The whole harness of tests/native: TEST("a sentence") { CHECK(...); } and one RUN_TESTS() per file.
// A failed CHECK prints file:line and ends the test; the program's status is the number of failed tests.
#pragma once

#include <cstdio>
#include <exception>
#include <vector>

namespace check {

struct Failure : std::exception {};

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  throw Failure();
}

inline int run() {
  int failed = 0;
  for (const Test& test : tests()) {
    std::printf("%s ... ", test.name);
    std::fflush(stdout);
    try {
      test.body();
      std::puts("ok");
    } catch (const std::exception& error) {
      std::printf("FAILED: %s\n", error.what());
      ++failed;
    }
  }
  std::printf("%zu tests, %d failed\n", tests().size(), failed);
  return failed;
}

}  // namespace check

#define CHECK_JOIN2(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN2(a, b)
#define TEST(name) CHECK_TEST(name, CHECK_JOIN(test_, __LINE__))
#define CHECK_TEST(name, id)                                              \
  static void id();                                                       \
  static const check::Registration CHECK_JOIN(id, _registered)(name, id); \
  static void id()
#define CHECK(what) ((what) ? void() : check::fail(__FILE__, __LINE__, #what))
#define RUN_TESTS() \
  int main() { return check::run(); }
