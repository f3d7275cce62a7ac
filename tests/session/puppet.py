"""A process that runs the Python source it reads from its input and answers with the value or
the exception.

All pieces of source run in one namespace; the value of the last expression is the answer. At the
end of its input the interpreter exits like any program, with everything that is still open.
"""

import ast
import os
import pickle
import struct
import sys

HEAD = struct.Struct("<Q")


def run(source, names):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<puppet>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<puppet>", "eval"), names) if last else None


def answer(source, names):
    try:
        value = True, run(source, names)
    except (Exception, KeyboardInterrupt) as error:
        value = False, error
    try:
        return pickle.dumps(value)
    except Exception:
        return pickle.dumps((value[0], repr(value[1])))


def main():
    commands = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    names = {"__name__": "puppet"}
    while head := commands.read(HEAD.size):
        source, given = pickle.loads(commands.read(HEAD.unpack(head)[0]))
        names.update(given)
        reply = answer(source, names)
        answers.write(HEAD.pack(len(reply)) + reply)
        answers.flush()


if __name__ == "__main__":
    main()
