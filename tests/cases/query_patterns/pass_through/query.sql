SELECT * INTO [Output] FROM [Input]
