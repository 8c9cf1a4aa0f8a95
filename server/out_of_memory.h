// What a program of the house does when it can get no memory any more.

#ifndef OSPREY_SERVER_OUT_OF_MEMORY_H_
#define OSPREY_SERVER_OUT_OF_MEMORY_H_

namespace osprey {

// From now on an allocation by `new` for which there is no memory ends the process with status 4
// and one line on stderr, "PROGRAM: out of memory; …". For mains: `program` must live as long as
// the process. Thread rule: before other threads start; it holds for all of them.
void EndWhenOutOfMemory(const char* program);

}  // namespace osprey

#endif  // OSPREY_SERVER_OUT_OF_MEMORY_H_
