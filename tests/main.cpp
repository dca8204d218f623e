#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

// The benchmarks link this library for its helpers only, so main is weak here.
__attribute__((weak)) int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  return context.run();
}
