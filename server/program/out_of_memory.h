// How every program of the project ends when it runs out of memory.

#ifndef OSPREY_SERVER_PROGRAM_OUT_OF_MEMORY_H_
#define OSPREY_SERVER_PROGRAM_OUT_OF_MEMORY_H_

namespace osprey {

// From now on a failed allocation by `new` ends the process with status 4 and one line on stderr,
// "PROGRAM: out of memory; …". For mains: `program` must live as long as the process. Thread rule:
// before other threads start; it applies to all of them.
void EndWhenOutOfMemory(const char* program);

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_OUT_OF_MEMORY_H_
