"""`fencepost completion`: what a shell needs to complete commands, actions and options.

eval "$(fencepost completion bash)"      (or zsh; fish: fencepost completion fish | source)
"""

import argparse
import importlib
from typing import Final

from . import COMMANDS
from .full_output import written_whole

_BASH: Final = """\
_fencepost() {{
  local words="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" current="${{COMP_WORDS[COMP_CWORD]}}" known
  case "$words" in
{cases}
    *) known="" ;;
  esac
  COMPREPLY=($(compgen -W "$known" -- "$current"))
}}
complete -o default -F _fencepost fencepost
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    return written_whole(lambda: _shown(arguments))


def _shown(arguments: argparse.Namespace) -> int:
    tree = _tree()
    if arguments.shell == "fish":
        print(_fish(tree), end="")
    else:
        cases = "\n".join(
            f'    {_pattern(path)}) known="{" ".join(words)}" ;;' for path, words in tree.items()
        )
        print((_ZSH if arguments.shell == "zsh" else "") + _BASH.format(cases=cases), end="")
    return 0


def _pattern(path: tuple[str, ...]) -> str:
    """Longer paths come first in the case, so that `topic create --x` is not taken for `topic`."""
    if path and path[-1].startswith("-"):  # the value of an option, wherever the option stands
        return f'"{" ".join(path[:-1])} "*"{path[-1]}"'
    return '""' if not path else f'"{" ".join(path)}"*'


def _tree() -> dict[tuple[str, ...], list[str]]:
    """Path of words -> what may come next; the longest paths first."""
    found: dict[tuple[str, ...], list[str]] = {(): sorted(COMMANDS)}
    for name, (module, _) in COMMANDS.items():
        parser = argparse.ArgumentParser(add_help=True)
        importlib.import_module(module).configure(parser)
        _walk((name,), parser, found)
    return dict(sorted(found.items(), key=lambda item: (-len(item[0]), item[0])))


def _walk(
    path: tuple[str, ...],
    parser: argparse.ArgumentParser,
    found: dict[tuple[str, ...], list[str]],
) -> None:
    words: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                words.append(name)
                _walk((*path, name), child, found)
        elif action.option_strings:
            words.append(action.option_strings[-1])
            if action.choices:
                found[*path, action.option_strings[-1]] = [str(each) for each in action.choices]
        elif action.choices:
            words += [str(choice) for choice in action.choices]
    found[path] = sorted(words)


def _fish(tree: dict[tuple[str, ...], list[str]]) -> str:
    lines = ["complete -c fencepost -f"]
    for path, words in tree.items():
        seen = " ".join(path)
        test = f"__fish_seen_subcommand_from {path[0]}" if path else "__fish_use_subcommand"
        if len(path) > 1:
            test += f"; and __fish_seen_subcommand_from {path[1]}"
        lines.append(f"# fencepost {seen}")
        lines += [f"complete -c fencepost -n '{test}' -a '{word}'" for word in words]
    return "\n".join(lines) + "\n"
