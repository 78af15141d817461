"""
The page of a pipeline: its server, who may ask it, and the files that a browser gets. ``tidegate ui`` opens it with the answers of other
commands; needs starlette and uvicorn (``pip install 'tidegate[ui]'``).
"""
