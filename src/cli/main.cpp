#include "cli/app.h"

int main(int argc, char** argv) { return mere::cli::run(argc, argv); }
