// Which sanitizer the tests are built with: long single-threaded searches need not run again under one
// that looks at threads.
#pragma once

namespace swaplab::test {

#if defined(__SANITIZE_THREAD__)  // g++
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)  // clang++
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace swaplab::test
