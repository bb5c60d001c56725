// Says to Clang's thread-safety analysis which lock guards what; other
// compilers read nothing.  `make check-threads` runs the analysis.
#pragma once

#if defined(__clang__)
#define GRISTMILL_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GRISTMILL_THREAD_ATTRIBUTE(x)
#endif

// Of a class: its objects are locks, or hold one for as long as they live.
#define CAPABILITY(name) GRISTMILL_THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY GRISTMILL_THREAD_ATTRIBUTE(scoped_lockable)

// Of a member: the lock that must be held to touch it.
#define GUARDED_BY(lock) GRISTMILL_THREAD_ATTRIBUTE(guarded_by(lock))

// Of a function: the locks that its caller must hold, or must not.
#define REQUIRES(...) \
  GRISTMILL_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GRISTMILL_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// Of a function: the locks that it takes, or gives up.
#define ACQUIRE(...) GRISTMILL_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GRISTMILL_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

// Of a function that locks what the analysis cannot follow; say why.
#define NO_THREAD_SAFETY_ANALYSIS \
  GRISTMILL_THREAD_ATTRIBUTE(no_thread_safety_analysis)
