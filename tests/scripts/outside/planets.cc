// planets SERVER KEY VALUE: puts, gets, and prints what it got.
#include <cstdio>

#include "client/client.h"
#include "client/pool.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto pool = osprey::ClientPool::Create(argv[1]);
  if (!pool.ok()) return std::fprintf(stderr, "%s\n", pool.status().ToString().c_str()), 1;
  auto client = (*pool)->Take();
  if (!client.ok()) return std::fprintf(stderr, "%s\n", client.status().ToString().c_str()), 1;
  auto put = (*client)->Put(argv[2], argv[3]);
  if (!put.ok()) return std::fprintf(stderr, "%s\n", put.status().ToString().c_str()), 1;
  auto value = (*client)->Get(argv[2]);
  if (!value.ok()) return std::fprintf(stderr, "%s\n", value.status().ToString().c_str()), 1;
  return std::puts(value->bytes.c_str()) < 0 ? 1 : 0;
}
