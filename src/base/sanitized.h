/* Which sanitizer this build has: 1 or 0 each. GCC says it by a macro, Clang by __has_feature. */
#pragma once

#ifdef __has_feature
#define MR_HAS_FEATURE(name) __has_feature(name)
#else
#define MR_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || MR_HAS_FEATURE(address_sanitizer)
#define MR_ADDRESS_SANITIZER 1
#else
#define MR_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || MR_HAS_FEATURE(thread_sanitizer)
#define MR_THREAD_SANITIZER 1
#else
#define MR_THREAD_SANITIZER 0
#endif
