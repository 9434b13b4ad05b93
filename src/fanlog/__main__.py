"""`python -m fanlog` is the `fanlog` command."""

from fanlog.cli.main import main

if __name__ == "__main__":
    main()
