/* sanitized.h - whether a test runs under a sanitizer: memory that was freed stays resident, shadow memory counts, and
 * everything is slower. */
#ifndef QUIRE_TESTS_SANITIZED_H
#define QUIRE_TESTS_SANITIZED_H

#if defined(__has_feature)
#define SANITIZED_FEATURE(name) __has_feature(name)
#else
#define SANITIZED_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || SANITIZED_FEATURE(address_sanitizer) ||           \
    SANITIZED_FEATURE(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
