"""`errand completion`: completion of commands, ids and agents for a shell."""

import click

COMPLETE_VARIABLE = "_ERRAND_COMPLETE"  # as the scripts below set it
# A shell looks a completion up by the command's name alone, so each script calls the word that was typed: ./errand, a
# path or errand. What it calls answers as click's own scripts expect it.
BASH = r"""_errand_completion() {
    local IFS=$'\n' kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _ERRAND_COMPLETE=bash_complete "${1/#\~/$HOME}")
}
complete -o nosort -F _errand_completion errand
"""
ZSH = r"""#compdef errand
_errand_completion() {
    local -a answer plain described
    local kind value about
    answer=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) _ERRAND_COMPLETE=zsh_complete \
        "${${(Q)words[1]}/#\~/$HOME}" 2>/dev/null)}")
    for kind value about in "${answer[@]}"; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files ;;
            plain) if [[ $about == _ ]]; then plain+=("$value"); else described+=("$value:$about"); fi ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _errand_completion "$@"
else
    compdef _errand_completion errand
fi
"""
FISH = r"""function _errand_completion
    set -l typed (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $typed[1])
    for line in (env _ERRAND_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) \
            $program 2>/dev/null)
        set -l answer (string split -m 1 , -- $line)
        switch $answer[1]
            case dir
                __fish_complete_directories $answer[2]
            case file
                __fish_complete_path $answer[2]
            case plain
                echo $answer[2]
        end
    end
end
complete --no-files --command errand --arguments '(_errand_completion)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@click.command()
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def completion(shell: str) -> None:
    """Print a script that completes commands, options, ids and agents in your shell.

    \b
    Examples:
      source <(./errand completion bash)            in ~/.bashrc
      source <(./errand completion zsh)             in ~/.zshrc, after compinit
      ./errand completion fish > ~/.config/fish/completions/errand.fish
    """
    click.echo(SCRIPTS[shell], nl=False)
