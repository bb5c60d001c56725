# The number of threads whose loops must end; nearly always 0.
cdef int cancelled_count

# Raises Cancelled if this thread is cancelled.  If cancelled_count is not 0, loops
# call this between two calls of the user's code.
cdef int check_thread() except -1
