// The command line program: words to a typed request, the engine, and back to text or JSON.
//
// Contract of every command: stdout carries the result (paths, or one JSON document with --json);
// progress, notes, warnings and errors go to stderr. Exit status: 0 success, 64 usage, 130
// cancelled, 1 everything else.
#pragma once

namespace mere::cli {

// Runs the program with main()'s arguments and returns its exit status; throws nothing.
int run(int argc, const char* const* argv);

}  // namespace mere::cli
