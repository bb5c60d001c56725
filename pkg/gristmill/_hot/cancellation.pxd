# Threads whose loops are to end; 0 nearly always.
cdef int cancelled_threads

# Raises Cancelled if this thread is one of them.  Loops that call the user's code call
# this between two calls if cancelled_threads is not 0.
cdef int check_thread() except -1
