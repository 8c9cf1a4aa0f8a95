// planets_c SERVER KEY VALUE: puts, gets, and prints what it got.
#include <osprey.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  osprey_client *client = NULL;
  osprey_result *result = NULL;
  if (argc != 4) return 2;
  int error = osprey_connect(argv[1], NULL, &client, &result);
  if (error == OSPREY_OK) error = osprey_put(client, argv[2], strlen(argv[2]), argv[3], strlen(argv[3]), NULL, NULL);
  if (error == OSPREY_OK) {
    osprey_result_free(result);
    error = osprey_get(client, argv[2], strlen(argv[2]), NULL, &result);
  }
  if (error != OSPREY_OK) return fprintf(stderr, "%s\n", osprey_error_text(error)), 1;
  puts(osprey_result_data(result));
  osprey_result_free(result);
  return osprey_close(client);
}
